"""The copy task of the Linear Transformer paper: softmax, linear and LSH attention."""

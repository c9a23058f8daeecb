"""Token shards: text at the scale of language models, prepared once."""

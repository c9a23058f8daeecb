"""What a mesh costs and changes: loss curves, and steps compiled for many devices."""

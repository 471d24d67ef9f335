"""`inspect`: what a trained transformer does, layer by layer and head by head."""

"""HyperNodes: how many nodes are below one, and which there should be (H01 to H04)."""

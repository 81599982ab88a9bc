"""Everything of visibility that touches the network."""

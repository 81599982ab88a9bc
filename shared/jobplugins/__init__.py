"""Job plugins: edits of pod templates and the objects beside them."""

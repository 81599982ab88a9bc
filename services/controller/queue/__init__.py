"""The Queue controller: states and default queues. Pure but for `reconciler`."""

"""Pure part of the Queue controller: states and default queues."""

"""Pure part of the PodGroup controller: groups for bare pods."""

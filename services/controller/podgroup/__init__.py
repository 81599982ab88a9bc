"""The PodGroup controller: groups for bare pods. Pure but for `reconciler`."""

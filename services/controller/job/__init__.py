"""The Job controller: phases, policies, plans. Pure but for `reconciler`."""

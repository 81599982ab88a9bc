"""Pure part of the Job controller: phases, policies, plans."""

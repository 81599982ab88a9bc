"""The processes of Pumice, one package each; they meet only in shared.contracts."""

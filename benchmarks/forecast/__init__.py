"""How well forecasts of starts hold, on traces of two GPU clusters in virtual time."""

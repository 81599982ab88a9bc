"""The cluster state: facts and assumptions folded, kept between cycles."""

"""Door: the page on which a customer follows his request, and what he may do there. Sees no row that staff wrote."""

"""Door: tags that our own pages share."""

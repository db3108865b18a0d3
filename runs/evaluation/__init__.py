"""Door: scenario suites, run on any route against private sandboxes and scored by outcome. Touches no real tenant."""

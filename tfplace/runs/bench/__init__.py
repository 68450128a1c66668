"""Models x clusters x algorithms x seeds at equal budgets: one table."""

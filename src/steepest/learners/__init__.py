"""The mathematics: states and steps, losses, penalties and schedules."""

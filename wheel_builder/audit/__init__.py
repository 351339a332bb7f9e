"""The rules for a finished wheel, and the stage that checks them."""

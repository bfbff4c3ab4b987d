"""What is recorded, and in which form: by now the log lines; metrics and delivery records will follow."""

"""The tables that records are reduced to: their columns, which need no Spark, and the jobs that compute their rows."""

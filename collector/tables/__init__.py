"""The tables that records are reduced to: their heads, which need no Spark, and the jobs that fill them."""

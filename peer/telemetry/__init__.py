"""Owns when and what a peer records; must not know how records are collected."""

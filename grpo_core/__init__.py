"""Trains one policy by GRPO and says what its reward signal went through."""

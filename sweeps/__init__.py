"""Asks questions of many GRPO trials: plan, run, judge, record, report, promote."""

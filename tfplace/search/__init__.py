"""The search: a policy proposes placements, an evaluator answers, the policy learns."""

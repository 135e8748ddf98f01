"""Parts of the learner beside its operator: small frozen values, each with a spec, any of which joins any operator."""

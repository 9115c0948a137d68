"""A fuzzer of what rlsim reads: files of eight kinds are damaged, each damaged one is given to a command.

``python -m evidence.fuzz`` prints what each kind of input led to: results, refusals and faults.
"""

"""How long a training takes, on how many chips, and whether it fits: the command `plan`.

request      what is asked for, checked before anything starts
candidates   ways to divide a train step, and what the formulas say of its memory
search       compiles the promising ones in order, until a budget is spent
published    training runs whose figures are published: how much of the peak they reached
measured     how much of the peak this suite's own records show
forecast     from a step to days, chip-hours, energy and money, with the range that is left
show         tables, Markdown and JSON
command      the whole flow
"""

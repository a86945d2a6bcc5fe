
local verbs = { write = write, claim = claim, arm = arm, rearm = rearm, resume = resume, set = set, tell = tell }
local verb = verbs[table.remove(ARGV, 1)]
if not verb then return no('INVALID_ARGUMENT the first argument is the verb') end
return verb(KEYS, ARGV)

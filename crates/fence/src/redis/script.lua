
local operations = { write = write, claim = claim, arm = arm, rearm = rearm, resume = resume, update = update, read = read }
local operation = operations[table.remove(ARGV, 1)]
if not operation then return fail('INVALID_ARGUMENT the first argument is not an operation; pass write, claim, arm, rearm, resume, update or read') end
return operation(KEYS, ARGV)

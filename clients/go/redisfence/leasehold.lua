#!lua name=leasehold
-- Fence for Redis and Valkey, version 3. The server runs check, mark update and write as one atomic step.
--
-- A mark is one string with fixed columns (counted from 1):
--   1-76    the token that set it, as a plain token without its checksum: cluster, incarnation, resource, slot and number
--   78      f fresh, a armed, l lost
--   80      the sum of 1 strict and 2 sealed, or 0
--   82-121  server id: replication id of the server that stored the mark
--   123-142 last sequence applied under the mark, 20 digits, or dashes
--   144-    name of the resource
-- A sealed token (`lh2-`) means what its first 76 bytes mean. Lua here has no Ed25519, and every caller could read a key, so the server
-- does not verify its signature: clients do (A8). A sealed mark refuses plain tokens.
-- Numbers are compared as fixed-width text, because Lua numbers are exact only up to 2^53.
local sub, rep, NO_SEQUENCE, TOKEN_PATTERN, SEAL_PATTERN, MARK_PATTERN
local HEX = '[0-9a-f]'

-- A library may not use other libraries while it is loaded, so these are initialized by the first call.
local function init()
  if sub then return end
  sub, rep = string.sub, string.rep
  NO_SEQUENCE = rep('-', 20)
  local hex = HEX
  TOKEN_PATTERN = '^lh[12]%-' .. rep(hex, 16) .. '%-' .. rep(hex, 8) .. '%-' .. rep(hex, 16) .. '%-[wru]' .. rep(hex, 8) .. '%-'
    .. rep('%d', 19) .. '%-' .. rep(hex, 8) .. '$'
  -- The last character of a signature has four bits to spare, which are zero.
  SEAL_PATTERN = '^%-[%w_-]+[AQgw]$'
  MARK_PATTERN = '^lh1%-' .. rep(hex, 16) .. '%-' .. rep('[0-9a-f-]', 8) .. '%-' .. rep(hex, 16) .. '%-w' .. rep(hex, 8) .. '%-'
    .. rep('%d', 19) .. ' [fal] [0-3] ' .. rep(hex, 40) .. ' ' .. rep('[%d-]', 20) .. ' '
end

-- Identity of this server: its first replication id since the library was loaded; nil on a replica, whose marks are those of its
-- primary. Redis changes the id in two cases. When the backlog for replicas is created or freed, the second id is empty, and the server
-- is the same. When a replica is promoted, the second id is its primary's: it is another server now, also if it was this one before it
-- was demoted, because it may lack marks that its successor stored. A script has no lasting locals and takes each id as another server.
local first_id, current_id
local function server_id()
  local info = redis.call('INFO', 'replication')
  if not string.find(info, 'role:master', 1, true) then
    first_id, current_id = nil, nil
    return nil
  end
  local id = string.match(info, 'master_replid:(%x+)')
  if id ~= current_id then
    if not (first_id and string.find(info, 'master_replid2:0+%s')) then first_id = id end
    current_id = id
  end
  return first_id
end

-- Last admitted mark text and token per key. While both are unchanged on the same server, the token is admitted without a check.
local admitted_mark, admitted_token, admitted_count = {}, {}, 0

local function fail(text) return { err = text } end

local function missing() return fail('STORAGE_FAILED reason=missing (no mark is stored; if nothing was written yet, arm the fence)') end

local function moved()
  return fail('STORAGE_FAILED reason=moved (another server stored the mark; re-arm the fence with a number no holder was granted yet)')
end

local function replica() return fail('CONFLICT reason=replica (this server is a replica; call its primary)') end

local function invalid_argument(field, text) return fail('INVALID_ARGUMENT field=' .. field .. ' (' .. text .. ')') end

-- Whether an argument has this number of characters of a class, such as '%d'.
local function has_shape(text, class, count)
  return type(text) == 'string' and string.find(text, '^' .. rep(class, count) .. '$') ~= nil
end

local function invalid(reason, text)
  return fail('TOKEN_INVALID reason=' .. reason .. ' (' .. text .. ')')
end

local function crc32(text)
  local bits = bit
  local crc = -1
  for i = 1, #text do
    crc = bits.bxor(crc, string.byte(text, i))
    for _ = 1, 8 do
      crc = bits.bxor(bits.rshift(crc, 1), bits.band(0xedb88320, -bits.band(crc, 1)))
    end
  end
  return bits.tohex(bits.bnot(crc))
end

-- Highest plausible number by the server's clock: milliseconds since 2025 plus one day, times 2^22, computed in two exact halves.
local function plausible_max()
  local time = redis.call('TIME')
  local ms = time[1] * 1000 + math.floor(time[2] / 1000) - 1735689600000 + 86400000
  if ms <= 0 then return rep('0', 19) end
  local high, low = math.floor(ms / 1000000), (ms % 1000000) * 4194304
  return string.format('%013.0f%06.0f', high * 4194304 + math.floor(low / 1000000), low % 1000000)
end

-- Returns an error if the text is not a token.
local function check_syntax(token)
  if token == '' then return invalid('absent', 'no token was presented; pass the token text of the grant') end
  local version = string.match(token, '^lh(%d+)%-')
  if version and version ~= '1' and version ~= '2' then
    return fail('UNSUPPORTED_VERSION reason=version have=' .. version .. ' want=2 (update the older side)')
  end
  local sealed = version == '2'
  if not string.find(sub(token, 1, 85), TOKEN_PATTERN) or #token ~= (sealed and 172 or 85)
    or (sealed and not string.find(sub(token, 86), SEAL_PATTERN)) then
    return invalid('shape', 'the text is not a token; pass the token text of the grant unchanged')
  end
  if not sealed and crc32(sub(token, 1, 76)) ~= sub(token, 78, 85) then
    return invalid('checksum', 'the checksum does not match; pass the token text of the grant unchanged')
  end
  local number = sub(token, 58, 76)
  if number == rep('0', 19) then return invalid('zero', 'the number is zero; pass the token text of the grant unchanged') end
  if number > '9223372036854775807' then
    return invalid('too_large', 'the number is above 9223372036854775807; pass the token text of the grant unchanged')
  end
end

-- Returns the mark at a key, or nil and an error.
local function read_mark(key)
  local mark = redis.pcall('GET', key)
  if not mark then return nil, missing() end
  if type(mark) ~= 'string' or not string.find(mark, MARK_PATTERN) then
    return nil, fail('STORAGE_FAILED reason=unreadable (the key holds no mark; restore it, then re-arm the fence)')
  end
  return mark
end

-- Checks a token and stores the new mark, with the last sequence that was applied under it. Returns an error, or the last sequence
-- if this write is a late duplicate, or the previous incarnation if the token is of another one.
local function admit(key, token, sequence)
  token = token or ''
  local previous_incarnation
  local mark = redis.pcall('GET', key)
  local server = server_id()
  if sequence == '' and mark and mark == admitted_mark[key] and token == admitted_token[key] and sub(mark, 82, 121) == server then
    return
  end
  if type(mark) == 'string' and sub(mark, 80, 80) >= '2' and sub(token, 1, 4) == 'lh1-' then
    return invalid('unsealed', 'the mark is sealed and the token is not; pass the sealed token text of the grant')
  end
  local body = 'lh1-' .. sub(token, 5, 76)
  local same = type(mark) == 'string' and #token == 85 and sub(mark, 1, 76) == body and sub(token, 1, 4) == 'lh1-' and sub(mark, 78, 78) == 'a'
    and sub(mark, 82, 121) == server
  if not same then
    local err = check_syntax(token)
    if err then return err end
    mark, err = read_mark(key)
    if err then return err end
    if sub(token, 5, 20) ~= sub(mark, 5, 20) then
      return fail('WRONG_CLUSTER reason=cluster (the token is from another cluster than the mark; use the target of this cluster)')
    end
    if sub(token, 31, 46) ~= sub(mark, 31, 46) then
      return invalid('resource', 'the token is for another resource; present the token of the resource that guards this key')
    end
    if sub(token, 48, 48) ~= 'w' then
      return invalid('shared', 'the token is of a shared lease or a reservation; acquire an exclusive lease')
    end
    if sub(token, 49, 56) ~= sub(mark, 49, 56) then
      return invalid('slot', 'the token is for another slot; present the token of the slot that guards this key')
    end
    local number, mark_number = sub(token, 58, 76), sub(mark, 58, 76)
    if number > plausible_max() then
      return fail('TOKEN_IMPLAUSIBLE reason=implausible presented=' .. number
        .. ' (more than one day ahead of the server clock; compare the clocks and verify the origin of the token)')
    end
    if sub(mark, 78, 78) == 'l' then
      return fail('STORAGE_FAILED reason=lost (the mark was declared lost; re-arm the fence with a number no holder was granted yet)')
    end
    if sub(mark, 82, 121) ~= server then return moved() end
    if number < mark_number then
      return fail('STALE_TOKEN presented=' .. number .. ' mark=' .. mark_number .. ' (a later holder has claimed; stop)')
    end
    local followed, presented = sub(mark, 22, 29), sub(token, 22, 29)
    if (sub(mark, 80, 80) == '1' or sub(mark, 80, 80) == '3') and followed ~= '--------' and followed ~= presented then
      return fail('NOT_ADOPTED presented=' .. number .. ' incarnation=' .. presented
        .. ' (this strict fence follows another incarnation; if the restore was intended, adopt this one)')
    end
    if followed ~= '--------' and followed ~= presented then previous_incarnation = followed end
    same = number == mark_number
  end
  local last = sub(mark, 123, 142)
  if not same then
    last = NO_SEQUENCE
  elseif sequence ~= '' and last ~= NO_SEQUENCE and sequence <= last then
    return nil, last
  end
  local new_mark = body .. ' a ' .. sub(mark, 80, 122) .. last .. sub(mark, 143)
  -- The mark is stored before the write: a failed write may follow a raised mark, never the other way round.
  if new_mark ~= mark then redis.call('SET', key, new_mark) end
  if not admitted_mark[key] then
    if admitted_count >= 1000 then admitted_mark, admitted_token, admitted_count = {}, {}, 0 end
    admitted_count = admitted_count + 1
  end
  admitted_mark[key], admitted_token[key] = new_mark, token
  return nil, nil, previous_incarnation
end

-- Runs a command if the token is admitted. A command that fails leaves the mark raised, and its sequence unused.
-- KEYS: the mark, then the keys of the command. ARGV: token, sequence (20 digits, or empty), the command.
local function write(keys, args)
  init()
  local key, sequence = keys[1], args[2]
  if not key then return invalid_argument('key', 'no key of a mark was passed; pass it as the first key') end
  if not args[3] then return invalid_argument('command', 'no command was passed; pass it after the sequence') end
  -- Lua can pass no more than about 8000 arguments to a function.
  if #args > 7902 then return invalid_argument('command', 'the command has more than 7900 words; split it') end
  if sequence ~= '' and (not has_shape(sequence, '%d', 20) or sequence > '18446744073709551615') then
    return invalid_argument('sequence', 'the sequence is not a number below 2^64 in 20 digits; pad it with zeros, or pass an empty text')
  end
  local name = string.upper(args[3])
  if name == 'FLUSHALL' or name == 'FLUSHDB' or name == 'SWAPDB' then
    return invalid_argument('command', 'the command would remove the mark too; delete the keys by their names')
  end
  for i = 4, #args do
    if args[i] == key then
      return invalid_argument('command', 'the command names the key of the mark, which only the fence may write; remove it')
    end
  end
  local err, last = admit(key, args[1], sequence)
  if err then return err end
  if last then return { 'ALREADY_APPLIED', last } end
  local reply = redis.pcall(unpack(args, 3))
  if sequence ~= '' and not (type(reply) == 'table' and reply.err) then
    local mark = redis.call('GET', key)
    if mark then redis.call('SET', key, sub(mark, 1, 122) .. sequence .. sub(mark, 143)) end
  end
  return reply
end

-- Raises the mark. Returns the token's number, and the previous incarnation if the token is of another one.
-- KEYS: the mark. ARGV: token.
local function claim(keys, args)
  init()
  if not keys[1] then return invalid_argument('key', 'no key of a mark was passed; pass it as the first key') end
  local err, _, previous = admit(keys[1], args[1], '')
  return err or sub(args[1], 58, 76) .. (previous and ' previous_incarnation=' .. previous or '')
end

-- Stores a fresh mark. An existing mark is left unchanged.
-- KEYS: the mark. ARGV: cluster, hash of the resource, slot in 8 digits, name, strict.
local function arm(keys, args)
  init()
  local server = server_id()
  if not server then return replica() end
  if not (has_shape(args[1], HEX, 16) and has_shape(args[2], HEX, 16) and has_shape(args[3], HEX, 8) and args[4]
    and has_shape(args[5], '[01]', 1)) then
    return invalid_argument('mark', 'pass cluster and hash in 16 hexadecimal digits, slot in 8, a name, and 0 or 1 for strict')
  end
  local fresh = 'lh1-' .. args[1] .. '---------' .. '-' .. args[2] .. '-w' .. args[3] .. '-' .. rep('0', 19)
  return redis.call('SET', keys[1], fresh .. ' f ' .. args[5] .. ' ' .. server .. ' ' .. NO_SEQUENCE .. ' ' .. args[4], 'NX')
end

-- Arms a lost mark again at a floor.
-- KEYS: the mark. ARGV: floor in 19 digits.
local function rearm(keys, args)
  init()
  local server = server_id()
  if not server then return replica() end
  if not has_shape(args[1], '%d', 19) or args[1] == rep('0', 19) or args[1] > '9223372036854775807' then
    return invalid_argument('floor', 'the floor is not a number from 1 to 9223372036854775807 in 19 digits; pad it with zeros')
  end
  local mark, err = read_mark(keys[1])
  if err then return err end
  if sub(mark, 58, 76) > args[1] then
    return fail('CONFLICT reason=floor floor=' .. args[1] .. ' mark=' .. sub(mark, 58, 76) .. ' (the floor is below the mark; use a higher one)')
  end
  return redis.call('SET', keys[1],
    sub(mark, 1, 57) .. args[1] .. ' a ' .. sub(mark, 80, 81) .. server .. ' ' .. NO_SEQUENCE .. sub(mark, 143))
end

-- Keeps using the mark after this server was restarted on its own disk.
-- KEYS: the mark. ARGV: none.
local function resume(keys)
  init()
  local server = server_id()
  if not server then return replica() end
  local mark, err = read_mark(keys[1])
  if err then return err end
  if string.find(redis.call('INFO', 'replication'), 'master_replid2:[0-9a-f]*[1-9a-f]') then return moved() end
  return redis.call('SET', keys[1], sub(mark, 1, 81) .. server .. sub(mark, 122))
end

-- Changes one property of the mark.
-- KEYS: the mark. ARGV: `lost`, `strict`, `lenient`, `seal`, or `adopt` and an incarnation.
local function update(keys, args)
  init()
  if not server_id() then return replica() end
  local mark, err = read_mark(keys[1])
  if err then return err end
  local change = args[1]
  local sealed = sub(mark, 80, 80) >= '2'
  if change == 'lost' then
    mark = sub(mark, 1, 77) .. 'l' .. sub(mark, 79)
  elseif change == 'strict' then
    mark = sub(mark, 1, 79) .. (sealed and '3' or '1') .. sub(mark, 81)
  elseif change == 'lenient' then
    mark = sub(mark, 1, 79) .. (sealed and '2' or '0') .. sub(mark, 81)
  elseif change == 'seal' then
    local strict = sub(mark, 80, 80) == '1' or sub(mark, 80, 80) == '3'
    mark = sub(mark, 1, 79) .. (strict and '3' or '2') .. sub(mark, 81)
  elseif change == 'adopt' and has_shape(args[2], HEX, 8) then
    mark = sub(mark, 1, 21) .. args[2] .. sub(mark, 30)
  else
    return invalid_argument('change', 'pass lost, strict, lenient, seal, or adopt and an incarnation in 8 hexadecimal digits')
  end
  return redis.call('SET', keys[1], mark)
end

-- Returns the mark, and 1 if this server stored it, else 0.
-- KEYS: the mark.
local function read(keys)
  init()
  local mark, err = read_mark(keys[1])
  if err then return err end
  return { mark, sub(mark, 82, 121) == server_id() and 1 or 0 }
end

redis.register_function('leasehold_write', write)
redis.register_function('leasehold_claim', claim)
redis.register_function('leasehold_arm', arm)
redis.register_function('leasehold_rearm', rearm)
redis.register_function('leasehold_resume', resume)
redis.register_function('leasehold_update', update)
redis.register_function('leasehold_read', read)
redis.register_function('leasehold_version', function() return 3 end)

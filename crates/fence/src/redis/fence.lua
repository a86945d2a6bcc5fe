-- Fence for Redis and Valkey, version 1. The server runs check, mark update and write as one atomic step.
--
-- A mark is one string with fixed columns (counted from 1):
--   1-76    the token that set it, without its checksum: cluster, incarnation, resource, slot and number
--   78      f fresh, a armed, l lost
--   80      1 strict, 0 not strict
--   82-121  server id: replication id of the server that stored the mark
--   123-142 last sequence applied under the mark, 20 digits, or dashes
--   144-    name of the resource
-- Numbers are compared as fixed-width text, because Lua numbers are exact only up to 2^53.
local sub, rep, NO_SEQUENCE, TOKEN_PATTERN, MARK_PATTERN

-- A library may not use other libraries while it is loaded, so these are initialized by the first call.
local function init()
  if sub then return end
  sub, rep = string.sub, string.rep
  NO_SEQUENCE = rep('-', 20)
  local hex = '[0-9a-f]'
  TOKEN_PATTERN = '^lh1%-' .. rep(hex, 16) .. '%-' .. rep(hex, 8) .. '%-' .. rep(hex, 16) .. '%-[wru]' .. rep(hex, 8) .. '%-'
    .. rep('%d', 19) .. '%-' .. rep(hex, 8) .. '$'
  MARK_PATTERN = '^lh1%-' .. rep(hex, 16) .. '%-' .. rep('[0-9a-f-]', 8) .. '%-' .. rep(hex, 16) .. '%-w' .. rep(hex, 8) .. '%-'
    .. rep('%d', 19) .. ' [fal] [01] ' .. rep(hex, 40) .. ' ' .. rep('[%d-]', 20) .. ' '
end

-- Identity of this server. A library reads it once: its locals live as long as the data it guards, because everything that loads
-- other data (a restart, a full resynchronization) also reloads the library. A script reads it on every call.
local cached_server_id
local function server_id()
  if not cached_server_id then
    cached_server_id = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
  end
  return cached_server_id
end

-- Last admitted mark text and token per key. While both are unchanged, the token is admitted without a check.
local admitted_mark, admitted_token, admitted_count = {}, {}, 0

local function fail(text) return { err = text } end

local function missing() return fail('STORAGE_FAILED reason=missing (no mark is stored; if nothing was written yet, arm the fence)') end

local function moved()
  return fail('STORAGE_FAILED reason=moved (another server stored the mark; re-arm the fence with a number no holder was granted yet)')
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
  if version and version ~= '1' then
    return fail('UNSUPPORTED_VERSION reason=version have=' .. version .. ' want=1 (update the older side)')
  end
  if not string.find(token, TOKEN_PATTERN) then
    return invalid('shape', 'the text is not a token; pass the token text of the grant unchanged')
  end
  if crc32(sub(token, 1, 76)) ~= sub(token, 78, 85) then
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

-- Checks a token and stores the new mark. Returns an error, or the last sequence if this write is a late duplicate, or the
-- previous incarnation if the token is of another one.
local function admit(key, token, sequence)
  token = token or ''
  local previous_incarnation
  local mark = redis.pcall('GET', key)
  if sequence == '' and mark and mark == admitted_mark[key] and token == admitted_token[key] then return end
  local body = sub(token, 1, 76)
  local same = type(mark) == 'string' and #token == 85 and sub(mark, 1, 76) == body and sub(mark, 78, 78) == 'a'
    and sub(mark, 82, 121) == server_id()
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
    if sub(mark, 82, 121) ~= server_id() then return moved() end
    if number < mark_number then
      return fail('STALE_TOKEN presented=' .. number .. ' mark=' .. mark_number .. ' (a later holder has claimed; stop)')
    end
    local followed, presented = sub(mark, 22, 29), sub(token, 22, 29)
    if sub(mark, 80, 80) == '1' and followed ~= '--------' and followed ~= presented then
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
  local new_mark = body .. ' a ' .. sub(mark, 80, 122) .. (sequence ~= '' and sequence or last) .. sub(mark, 143)
  -- The mark is stored before the write: a failed write may follow a raised mark, never the other way round.
  if new_mark ~= mark then redis.call('SET', key, new_mark) end
  if not admitted_mark[key] then
    if admitted_count >= 1000 then admitted_mark, admitted_token, admitted_count = {}, {}, 0 end
    admitted_count = admitted_count + 1
  end
  admitted_mark[key], admitted_token[key] = new_mark, token
  return nil, nil, previous_incarnation
end

-- Runs a command if the token is admitted.
-- KEYS: the mark, then the keys of the command. ARGV: token, sequence (20 digits, or empty), the command.
local function write(keys, args)
  init()
  for i = 4, #args do
    if args[i] == keys[1] then
      return fail('INVALID_ARGUMENT the command names the key of the mark, which only the fence may write; remove it')
    end
  end
  local err, last = admit(keys[1], args[1], args[2])
  if err then return err end
  if last then return { 'ALREADY_APPLIED', last } end
  return redis.call(unpack(args, 3))
end

-- Raises the mark. Returns the token's number, and the previous incarnation if the token is of another one.
-- KEYS: the mark. ARGV: token.
local function claim(keys, args)
  init()
  local err, _, previous = admit(keys[1], args[1], '')
  return err or sub(args[1], 58, 76) .. (previous and ' previous_incarnation=' .. previous or '')
end

-- Stores a fresh mark. An existing mark is left unchanged.
-- KEYS: the mark. ARGV: cluster, hash of the resource, slot in 8 digits, name, strict.
local function arm(keys, args)
  init()
  local fresh = 'lh1-' .. args[1] .. '---------' .. '-' .. args[2] .. '-w' .. args[3] .. '-' .. rep('0', 19)
  return redis.call('SET', keys[1], fresh .. ' f ' .. args[5] .. ' ' .. server_id() .. ' ' .. NO_SEQUENCE .. ' ' .. args[4], 'NX')
end

-- Arms a lost mark again at a floor.
-- KEYS: the mark. ARGV: floor in 19 digits.
local function rearm(keys, args)
  init()
  local mark, err = read_mark(keys[1])
  if err then return err end
  if sub(mark, 58, 76) > args[1] then
    return fail('CONFLICT reason=floor floor=' .. args[1] .. ' mark=' .. sub(mark, 58, 76) .. ' (the floor is below the mark; use a higher one)')
  end
  return redis.call('SET', keys[1],
    sub(mark, 1, 57) .. args[1] .. ' a ' .. sub(mark, 80, 81) .. server_id() .. ' ' .. NO_SEQUENCE .. sub(mark, 143))
end

-- Keeps using the mark after this server was restarted on its own disk.
-- KEYS: the mark. ARGV: none.
local function resume(keys)
  init()
  local mark, err = read_mark(keys[1])
  if err then return err end
  if string.find(redis.call('INFO', 'replication'), 'master_replid2:[0-9a-f]*[1-9a-f]') then return moved() end
  return redis.call('SET', keys[1], sub(mark, 1, 81) .. server_id() .. sub(mark, 122))
end

-- Changes one property of the mark.
-- KEYS: the mark. ARGV: `lost`, `strict`, `lenient`, or `adopt` and an incarnation.
local function update(keys, args)
  init()
  local mark, err = read_mark(keys[1])
  if err then return err end
  if args[1] == 'lost' then mark = sub(mark, 1, 77) .. 'l' .. sub(mark, 79) end
  if args[1] == 'strict' then mark = sub(mark, 1, 79) .. '1' .. sub(mark, 81) end
  if args[1] == 'lenient' then mark = sub(mark, 1, 79) .. '0' .. sub(mark, 81) end
  if args[1] == 'adopt' then mark = sub(mark, 1, 21) .. args[2] .. sub(mark, 30) end
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

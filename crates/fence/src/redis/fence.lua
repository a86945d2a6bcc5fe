-- The rules of the fence, version 1. The whole of it is one step of the server: check, mark and write.
--
-- A mark is one text at its key, with fixed places (counted from 1):
--   1-76    the token that set it, without its checksum: whose, of which life, for what, and the number
--   78      f fresh, a armed, l lost
--   80      1 strict, 0 not
--   82-121  home: the replication id of the server that kept it
--   123-142 the last sequence applied under it, 20 digits, or dashes
--   144-    the resource's name
-- Numbers are compared as text of one width, never as Lua's numbers, which are exact only up to 2^53.
local sub, rep, NONE, SHAPE, KEPT

-- While a library is loaded it may name no other library, so what is made of them is made at the first call.
local function begin()
  if sub then return end
  sub, rep = string.sub, string.rep
  NONE = rep('-', 20)
  local hex = '[0-9a-f]'
  SHAPE = '^lh1%-' .. rep(hex, 16) .. '%-' .. rep(hex, 8) .. '%-' .. rep(hex, 16) .. '%-[wru]' .. rep(hex, 8) .. '%-'
    .. rep('%d', 19) .. '%-' .. rep(hex, 8) .. '$'
  KEPT = '^lh1%-' .. rep(hex, 16) .. '%-' .. rep('[0-9a-f-]', 8) .. '%-' .. rep(hex, 16) .. '%-w' .. rep(hex, 8) .. '%-'
    .. rep('%d', 19) .. ' [fal] [01] ' .. rep(hex, 40) .. ' ' .. rep('[%d-]', 20) .. ' '
end

-- Who this server is. A library asks once: its locals live as long as the data it guards stays in this process, because
-- what loads other data (a restart, a full resynchronisation) loads the library anew. A script asks every time.
local home
local function whose()
  if not home then home = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') end
  return home
end

local function no(text) return { err = text } end

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

-- The highest number that the server's clock believes: milliseconds since 2025, and a day, times 2^22, in two exact halves.
local function believable()
  local time = redis.call('TIME')
  local ms = time[1] * 1000 + math.floor(time[2] / 1000) - 1735689600000 + 86400000
  if ms <= 0 then return rep('0', 19) end
  local high, low = math.floor(ms / 1000000), (ms % 1000000) * 4194304
  return string.format('%013.0f%06.0f', high * 4194304 + math.floor(low / 1000000), low % 1000000)
end

-- What is no token at all.
local function misread(token)
  if token == '' then return no('TOKEN_INVALID why=absent') end
  local version = string.match(token, '^lh(%d+)%-')
  if version and version ~= '1' then return no('UNSUPPORTED_VERSION why=token have=' .. version) end
  if not string.find(token, SHAPE) then return no('TOKEN_INVALID why=shape') end
  if crc32(sub(token, 1, 76)) ~= sub(token, 78, 85) then return no('TOKEN_INVALID why=checksum') end
  local number = sub(token, 58, 76)
  if number == rep('0', 19) then return no('TOKEN_INVALID why=zero') end
  if number > '9223372036854775807' then return no('TOKEN_INVALID why=too_large') end
end

-- The mark at a key, or why there is none.
local function kept_at(key)
  local kept = redis.pcall('GET', key)
  if not kept then return nil, no('STORAGE_FAILED why=missing') end
  if type(kept) ~= 'string' or not string.find(kept, KEPT) then return nil, no('STORAGE_FAILED why=unreadable') end
  return kept
end

-- Whether this token passes, and if so keeps the new mark. Gives a refusal, or the last sequence if this write is a late
-- duplicate, or the incarnation that was left.
local function admit(key, token, sequence)
  token = token or ''
  local left
  local kept = redis.pcall('GET', key)
  local body = sub(token, 1, 76)
  local same = type(kept) == 'string' and #token == 85 and sub(kept, 1, 76) == body and sub(kept, 78, 78) == 'a'
    and sub(kept, 82, 121) == whose()
  if not same then
    local refused = misread(token)
    if refused then return refused end
    kept, refused = kept_at(key)
    if refused then return refused end
    if sub(token, 5, 20) ~= sub(kept, 5, 20) then return no('WRONG_CLUSTER why=cluster') end
    if sub(token, 31, 46) ~= sub(kept, 31, 46) then return no('TOKEN_INVALID why=resource') end
    if sub(token, 48, 48) ~= 'w' then return no('TOKEN_INVALID why=shared') end
    if sub(token, 49, 56) ~= sub(kept, 49, 56) then return no('TOKEN_INVALID why=slot') end
    local number, mark = sub(token, 58, 76), sub(kept, 58, 76)
    if number > believable() then return no('TOKEN_IMPLAUSIBLE presented=' .. number) end
    if sub(kept, 78, 78) == 'l' then return no('STORAGE_FAILED why=lost') end
    if sub(kept, 82, 121) ~= whose() then return no('STORAGE_FAILED why=moved') end
    if number < mark then return no('STALE_TOKEN presented=' .. number .. ' mark=' .. mark) end
    local followed, shown = sub(kept, 22, 29), sub(token, 22, 29)
    if sub(kept, 80, 80) == '1' and followed ~= '--------' and followed ~= shown then
      return no('NOT_ADOPTED presented=' .. number .. ' incarnation=' .. shown)
    end
    if followed ~= '--------' and followed ~= shown then left = followed end
    same = number == mark
  end
  local last = sub(kept, 123, 142)
  if not same then
    last = NONE
  elseif sequence ~= '' and last ~= NONE and sequence <= last then
    return nil, last
  end
  local now = body .. ' a ' .. sub(kept, 80, 122) .. (sequence ~= '' and sequence or last) .. sub(kept, 143)
  -- Before the write: an error of the write may follow a mark that was raised, never the other way round.
  if now ~= kept then redis.call('SET', key, now) end
  return nil, nil, left
end

-- KEYS: the mark, then what the command touches. ARGV: token, sequence (20 digits, or empty), the command.
local function write(keys, args)
  begin()
  for i = 4, #args do
    if args[i] == keys[1] then return no('INVALID_ARGUMENT the command names the mark itself') end
  end
  local refused, last = admit(keys[1], args[1], args[2])
  if refused then return refused end
  if last then return { 'ALREADY_APPLIED', last } end
  return redis.call(unpack(args, 3))
end

-- KEYS: the mark. ARGV: token. Gives its number, and the incarnation that was followed before if this is another one.
local function claim(keys, args)
  begin()
  local refused, _, left = admit(keys[1], args[1], '')
  return refused or sub(args[1], 58, 76) .. (left and ' left=' .. left or '')
end

-- KEYS: the mark. ARGV: cluster, resource's hash, slot in 8 digits, name, strict. A mark that is kept stays.
local function arm(keys, args)
  begin()
  local fresh = 'lh1-' .. args[1] .. '---------' .. '-' .. args[2] .. '-w' .. args[3] .. '-' .. rep('0', 19)
  return redis.call('SET', keys[1], fresh .. ' f ' .. args[5] .. ' ' .. whose() .. ' ' .. NONE .. ' ' .. args[4], 'NX')
end

-- KEYS: the mark. ARGV: a floor in 19 digits.
local function rearm(keys, args)
  begin()
  local kept, refused = kept_at(keys[1])
  if refused then return refused end
  if sub(kept, 58, 76) > args[1] then return no('CONFLICT why=floor') end
  return redis.call('SET', keys[1], sub(kept, 1, 57) .. args[1] .. ' a ' .. sub(kept, 80, 81) .. whose() .. ' ' .. NONE .. sub(kept, 143))
end

-- KEYS: the mark. ARGV: none. The same server, started again on its own disk, goes on where it stopped.
local function resume(keys)
  begin()
  local kept, refused = kept_at(keys[1])
  if refused then return refused end
  if string.find(redis.call('INFO', 'replication'), 'master_replid2:[0-9a-f]*[1-9a-f]') then
    return no('STORAGE_FAILED why=moved')
  end
  return redis.call('SET', keys[1], sub(kept, 1, 81) .. whose() .. sub(kept, 122))
end

-- KEYS: the mark. ARGV: what to change: `lost`, `strict`, `lenient`, or `adopt` and an incarnation.
local function set(keys, args)
  begin()
  local kept, refused = kept_at(keys[1])
  if refused then return refused end
  if args[1] == 'lost' then kept = sub(kept, 1, 77) .. 'l' .. sub(kept, 79) end
  if args[1] == 'strict' then kept = sub(kept, 1, 79) .. '1' .. sub(kept, 81) end
  if args[1] == 'lenient' then kept = sub(kept, 1, 79) .. '0' .. sub(kept, 81) end
  if args[1] == 'adopt' then kept = sub(kept, 1, 21) .. args[2] .. sub(kept, 30) end
  return redis.call('SET', keys[1], kept)
end

-- KEYS: the mark. What is kept, and whether this server kept it.
local function tell(keys)
  begin()
  local kept, refused = kept_at(keys[1])
  if refused then return refused end
  return { kept, sub(kept, 82, 121) == whose() and 1 or 0 }
end

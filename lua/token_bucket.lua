-- acquire: closes the lease that the caller holds at one token bucket, grants the costs of those who wait, in order,
-- each whole or not at all, and lends the caller more. With want = 0 and no costs it gives a lease back.
--
-- KEYS[1]  the bucket
-- ARGV     requests, period_ms, burst     the limit: so many requests per period, at most burst at once
--          life_ms, lend                  how long small leases live; how much of the burst is lent freely
--          want                           how many tokens the caller wants to hold, not counting those who wait
--          end, size, carry               its lease: its id, what it is counted with, what of it is unspent; 0, 0, 0: none
--          hold                           1: what is granted is lent, too, and so is counted until it is spent
--          debt                           tokens that the caller has spent without asking
--          number                         which call this is, by whatever its caller chose; an integer below 2^53
--          then for each run: cost, count count requests in a row that cost the same
-- reply    number                         the call's own, so that nobody takes another call's reply for its own
--          level, reset_ms                units in the bucket, ms until it is full if nothing more is taken
--          end, valid_ms                  the new lease: its id, how long it may be spent; 0, 0: none
--          kept, extra                    tokens of it: carried on from the old one, new
--          limited                        1: less than wanted, because the bucket is scarce
--          granted...                     how many of each run were granted (the first ones of the run)
-- or       number, 'WEIR ...'             the key holds something that this script did not write; it stays as it is
--
-- What is kept is what was used, not the level, so that a change of limit moves nothing: level = burst - used, of the
-- burst of whoever asks. Lent tokens are used: used >= lent, always. A lease is counted in a slot until it is closed
-- or the slot ends. There are two kinds, long and short, and of each at most a current and a previous slot.
--
-- Numbers are doubles that only ever hold integers below 2^53, so they are exact. A unit is 1/period_ms of a
-- token: each millisecond adds `requests` units and a token is `period_ms` units. The caller guarantees
-- burst * period_ms < 2^53 and 1 <= cost <= burst, and a period of a second at least, so that tokens fit six bytes.
-- More use than 2^53 units is forgiven.
--
-- The value is the units used and the time (ms) of that, two little-endian doubles, and for each slot that is not empty its kind
-- (one byte), its tokens and its end (six bytes each). No key means that nothing is used. Redis TIME is the only
-- clock. Where it is behind the bucket's time by a second at most, time stands still until it has caught up. By more, it
-- was set back, and time goes on from there: the bucket refills at its rate, as if none had passed, and a slot that
-- ends later than after two of its lives ends after two lives, or after the time that it had left, should that be more:
-- never before its leases do. Its end being its id, they are no longer found when they are reported, and their tokens
-- come back by themselves.

local requests, period_ms, burst = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local life_ms, lend, want = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local id, size, carry = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local hold, debt, number = ARGV[10] == '1', tonumber(ARGV[11]), assert(tonumber(ARGV[12]))
local capacity = burst * period_ms
local most = 2^53 - 1
local LONG, SHORT = 1, 2

-- math.fmod is exact; the % of Lua 5.1 rounds a quotient and is not.
local function floor_div(a, b) return (a - math.fmod(a, b)) / b end
local function ceil_div(a, b)
  local rest = math.fmod(a, b)
  if rest == 0 then return a / b end
  return (a - rest) / b + 1
end

local function exact(a) return a > -2^53 and a < 2^53 and math.fmod(a, 1) == 0 end -- false for NaN

-- How long a slot of this kind takes leases, at least.
local function lives_of(kind)
  if kind == LONG then return life_ms end
  return math.min(life_ms, math.max(3000, 3 * ceil_div(capacity, requests)))
end

-- The first end from then on that no slot has: it is the id of what is counted there.
local function unused_end(slots, ends)
  for _ = 1, #slots do
    for _, slot in ipairs(slots) do
      if slot.ends == ends then ends = ends + 1 end
    end
  end
  return ends
end

local time = redis.call('TIME')
local clock = tonumber(time[1]) * 1000 + floor_div(tonumber(time[2]), 1000)

local used, now, slots, lent = 0, clock, {}, 0
-- An error about the key is caught: an error of Redis could not carry the number.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' and not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
if value then
  local last
  local ours = type(value) == 'string' and #value >= 16 and #value <= 16 + 4 * 13 and (#value - 16) % 13 == 0
  if ours then
    used, last = struct.unpack('<dd', value)
    ours = exact(used) and used >= 0 and exact(last) and last >= 0
    for at = 17, #value, 13 do
      local kind, tokens, ends = struct.unpack('<BI6I6', value, at)
      ours = ours and (kind == LONG or kind == SHORT)
      slots[#slots + 1] = {kind = kind, tokens = tokens, ends = ends}
      lent = lent + tokens
    end
    ours = ours and lent * period_ms < 2^53
  end
  if not ours then return {number, 'WEIR the key holds no token bucket'} end
  now = math.max(clock, last)
  if last > clock + 1000 then
    now = clock
    -- What had ended by then has ended.
    for _, slot in ipairs(slots) do
      local least = now + 2 * lives_of(slot.kind)
      if slot.ends <= last then
        slot.ends = 0
      elseif slot.ends > least then
        slot.ends = unused_end(slots, math.max(least, now + slot.ends - last))
      end
    end
    last = now
  end
  -- The refill stops at what is lent, slots that have ended since included: their tokens were out until then. From the
  -- time to there on it stays there, which also keeps the product small.
  local least = lent * period_ms
  if used <= least or now - last >= ceil_div(used - least, requests) then
    used = least
  else
    used = used - (now - last) * requests
  end
end

-- Slots that have ended are empty; then the caller's lease is taken off, if it is still counted. A slot that is empty
-- now is forgotten.
local alive, taken = {}, 0
lent = 0
for _, slot in ipairs(slots) do
  if slot.ends > now then
    if slot.ends == id then
      taken = math.min(size, slot.tokens)
      slot.tokens = slot.tokens - taken
    end
    lent = lent + slot.tokens
    if slot.tokens > 0 then alive[#alive + 1] = slot end
  end
end
slots = alive
-- Only what was taken is carried on, and what is not wanted any more goes back.
carry = math.min(carry, taken)
local kept = math.min(carry, want)
lent = lent + kept
if carry > kept then used = math.min(used, math.max(used - (carry - kept) * period_ms, lent * period_ms)) end
used = math.min(used + debt * period_ms, most)

-- Below nothing where more was used than this burst has.
local level = capacity - used
local whole, granted, all = level + lent * period_ms, 0, true
local reply = {number, 0, 0, 0, 0, kept, 0, 0}
for run = 13, #ARGV, 2 do
  local cost, count = tonumber(ARGV[run]), tonumber(ARGV[run + 1])
  local fit = math.min(count, floor_div(math.max(level, 0), cost * period_ms))
  level = level - fit * cost * period_ms
  granted = granted + fit * cost
  all = all and fit == count
  reply[#reply + 1] = fit
end

-- Rich, the bucket lends at most `lend` in all; scarce, as much of what is wanted as the time to full is of 10 s. Never
-- more than a quarter of what is there, so that the next caller finds something, too.
local extra, rich = 0, whole > capacity - lend * period_ms
if all and want > kept then
  local quarter = 4 * period_ms
  if not rich then
    local wanted = math.ceil(want * math.min(1, (capacity - whole) / (requests * 10000))) - kept
    extra = math.max(0, math.min(wanted, floor_div(math.max(level, 0), quarter)))
    if extra < wanted then reply[8] = 1 end
  elseif burst >= 64 then
    local room = math.max(0, math.min(level, (lend - lent) * period_ms))
    extra = math.min(want - kept, floor_div(room, quarter))
  end
end
level = level - extra * period_ms

size = kept + extra
if hold then size = size + granted end
if size > 0 then
  local is_long = rich and size <= math.max(3, math.min(64, floor_div(burst, 64)))
  local kind = is_long and LONG or SHORT
  local lives = lives_of(kind)
  local current, previous
  for _, slot in ipairs(slots) do
    if slot.kind == kind then
      if current then previous = current end
      current = slot
    end
  end
  -- A slot takes leases for one life, and ends one life later. An end is never moved, and none is given twice.
  if not previous and not (current and current.ends - now >= lives) then
    local ends = math.max(current and current.ends or 0, now) + lives
    current = {kind = kind, tokens = 0, ends = unused_end(slots, ends)}
    slots[#slots + 1] = current
  end
  current.tokens = current.tokens + size
  reply[4], reply[5] = current.ends, math.min(current.ends - now, 2 * lives)
end

lent = 0
local newest, packed = now, {struct.pack('<dd', capacity - level, now)}
for _, slot in ipairs(slots) do
  if slot.tokens > 0 then
    lent = lent + slot.tokens
    newest = math.max(newest, slot.ends)
    packed[#packed + 1] = struct.pack('<BI6I6', slot.kind, slot.tokens, slot.ends)
  end
end
local reset_ms = ceil_div(capacity - level, requests)
reply[2], reply[3], reply[7] = level, reset_ms, extra
-- A second longer than until it is full with nothing lent; a clock that is behind has that way to go first.
local expires_in = math.max(reset_ms, (newest - now) + ceil_div(lent * period_ms, requests))
redis.call('SET', KEYS[1], table.concat(packed), 'PX', (now - clock) + expires_in + 1000)
return reply

-- The token bucket: behind the prelude, which says what it takes and answers.
--
-- The limit is requests, period_ms, burst: so many requests per period, at most burst at once. A unit is 1/period_ms of
-- a token: each millisecond adds `requests` units and a token is `period_ms` units. The caller guarantees
-- burst * period_ms < 2^53 and 1 <= cost <= burst, and a period of a second at least, so that tokens fit six bytes.
--
-- The value is the units used and the time (ms) of that, two little-endian doubles, and the slots. No key means that
-- nothing is used. What is kept is what was used, not the level, so that a change of limit moves nothing: level =
-- burst - used, of the burst of whoever asks. used >= lent, always.

local requests, period_ms, burst = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local capacity = burst * period_ms

-- Small leases live long; large ones as long as a bucket takes to be full three times.
local function lives_of(kind)
  if kind == 1 then return life_ms end
  return math.min(life_ms, math.max(3000, 3 * ceil_div(capacity, requests)))
end

local used, now, slots, lent = 0, clock, {}, 0
if value then
  local last, passed
  slots = nil
  if #value >= 16 then
    used, last = struct.unpack('<dd', value)
    if is_count(used) and is_count(last) then slots, lent = read_slots(value, 17) end
  end
  if not slots or lent * period_ms > most then return {number, 'WEIR the key holds no token bucket'} end
  now, passed = time_since(last, slots, lives_of)
  -- The refill stops at what is lent, slots that have ended since included: their tokens were out until then. From the
  -- time to there on it stays there, which also keeps the product small.
  local least = lent * period_ms
  if used <= least or passed >= ceil_div(used - least, requests) then
    used = least
  else
    used = used - passed * requests
  end
end

-- Only what was taken off is carried on, and what is not wanted any more goes back.
local taken
slots, taken, lent = close_lease(slots, now, id, size)
carry = math.min(carry, taken)
local kept = math.min(carry, want)
lent = lent + kept
if carry > kept then used = math.min(used, math.max(used - (carry - kept) * period_ms, lent * period_ms)) end
used = math.min(used + debt * period_ms, most)

-- Below nothing where more was used than this burst has.
local level = capacity - used
local whole = level + lent * period_ms
local tokens, all = grant(reply, level, period_ms)
level = level - tokens * period_ms

-- Rich, the bucket lends at most `lend` in all; scarce, as much of what is wanted as the time to full is of 10 s. Never
-- more than a quarter of what is there, so that the next caller finds something, too.
local extra, limited, rich = 0, 0, whole > capacity - lend * period_ms
if all and want > kept then
  local quarter = 4 * period_ms
  if not rich then
    local wanted = math.ceil(want * math.min(1, (capacity - whole) / (requests * 10000))) - kept
    extra = math.max(0, math.min(wanted, floor_div(math.max(level, 0), quarter)))
    if extra < wanted then limited = 1 end
  elseif burst >= 64 then
    local room = math.max(0, math.min(level, (lend - lent) * period_ms))
    extra = math.min(want - kept, floor_div(room, quarter))
  end
end
level = level - extra * period_ms

size = kept + extra
if hold then size = size + tokens end
local ends, valid_ms = 0, 0
if size > 0 then
  local is_long = rich and size <= math.max(3, math.min(64, floor_div(burst, 64)))
  local kind = is_long and 1 or 2
  ends, valid_ms = open_lease(slots, now, kind, lives_of(kind), size)
end

-- Until it is full with nothing lent.
local newest = now
lent = 0
for _, slot in ipairs(slots) do
  lent = lent + slot.tokens
  newest = math.max(newest, slot.ends)
end
local reset_ms = ceil_div(capacity - level, requests)
local expires_in = math.max(reset_ms, (newest - now) + ceil_div(lent * period_ms, requests))
write(struct.pack('<dd', capacity - level, now), slots, now, expires_in)
reply[2], reply[3], reply[4], reply[5] = level, reset_ms, ends, valid_ms
reply[6], reply[7], reply[8] = kept, extra, limited
return reply

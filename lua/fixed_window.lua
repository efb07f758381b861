
-- The fixed window: behind the prelude, which says what it takes and answers.
--
-- The limit is requests, period_ms, offset: so many requests in each window of a period. Windows begin at multiples of
-- the period and `offset` after. A unit is a token. The caller guarantees requests * period_ms < 2^53,
-- 0 <= offset < period_ms and 1 <= cost <= requests, and a period of a second at least, so that tokens fit six bytes.
--
-- The value is the tokens used in the window and the time (ms) of that, two little-endian doubles, and the slots. No key
-- means that nothing is used. The reply's reset_ms is what is left of the window, also where nothing is used: nobody
-- else can tell a proxy when a window ends by this clock.
--
-- What is lent counts as used while it is out, also where a window begins meanwhile: then that much is used at first.
-- No lease outlives its window, so that happens only where the clock was set back. What a lease has spent is booked when
-- it is closed, by giving back the rest; the rest of one that is not closed stays used, for nobody knows whether it is.
-- used >= lent, always.

local requests, period_ms, offset = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

-- How long a moment's window has begun before it.
local function since_begin(moment)
  return math.fmod(moment + period_ms - offset, period_ms)
end

-- Where the clock was set back, each slot keeps the time that it had left, and so gets another end: its leases are no
-- longer found when they are reported. Else what is carried on would be counted until a border that now comes early,
-- while whoever waits for that reply still spends it.
local function lives_of() return 0 end

local used, now, slots, lent = 0, clock, {}, 0
if value then
  local last
  slots = nil
  if #value >= 16 then
    used, last = struct.unpack('<dd', value)
    if is_count(used) and is_count(last) then slots, lent = read_slots(value, 17) end
  end
  if not slots then return {number, 'WEIR the key holds no fixed window'} end
  now = time_since(last, slots, lives_of)
  -- Where the clock was set back, no window begins: it is that of now, with what was used in the one before. Where one
  -- begins, what was lent beyond the border is used, also in slots that have ended since.
  local begin = now - since_begin(now)
  if begin > last then
    used = 0
    for _, slot in ipairs(slots) do
      if slot.ends > begin then used = used + slot.tokens end
    end
  end
end

local taken
slots, taken, lent = close_lease(slots, now, id, size)
local left = period_ms - since_begin(now)

-- Only what was taken off is carried on, and what is not wanted any more goes back.
carry = math.min(carry, taken)
local kept = math.min(carry, want)
lent = lent + kept
used = math.min(math.max(used - (carry - kept), lent) + debt, most)

-- Below nothing where more was used than this limit has.
local level = requests - used
local whole = level + lent
local tokens, all = grant(reply, level, 1)
level = level - tokens

-- A lease is wanted for 10 s, of which the window may have less. Rich, the window lends at most `lend` in all; scarce,
-- what is wanted. Never more than a quarter of what is there, so that the next caller finds something, too.
local extra, limited, rich = 0, 0, whole > requests - lend
if all and want > kept then
  local wanted = math.ceil(want * math.min(1, left / 10000)) - kept
  if not rich then
    extra = math.max(0, math.min(wanted, floor_div(math.max(level, 0), 4)))
    if extra < wanted then limited = 1 end
  elseif requests >= 64 then
    extra = math.max(0, math.min(wanted, floor_div(math.max(0, math.min(level, lend - lent)), 4)))
  end
end
level = level - extra

size = kept + extra
if hold then size = size + tokens end
local ends, valid_ms = 0, 0
if size > 0 then
  ends, valid_ms = open_lease(slots, now, 1, left, size)
  -- A slot whose end the clock was set back from is later than the window.
  valid_ms = math.min(valid_ms, left)
end

-- Until the window is over, and those in which a lease may still be spent.
local over = now + left
for _, slot in ipairs(slots) do
  over = math.max(over, slot.ends + math.fmod(period_ms - since_begin(slot.ends), period_ms))
end
write(struct.pack('<dd', requests - level, now), slots, now, over - now)
reply[2], reply[3], reply[4], reply[5] = level, left, ends, valid_ms
reply[6], reply[7], reply[8] = kept, extra, limited
return reply

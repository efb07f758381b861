-- The prelude of every script: what scripts take and answer, and what they share. The build joins an algorithm to it.
--
-- A script closes the lease that the caller holds at one key, grants the costs of those who wait, in order, each whole
-- or not at all, and lends the caller more. With want = 0 and no costs it gives a lease back.
--
-- KEYS[1]  what one tenant has used of one limit
-- ARGV     three numbers                 the limit, as the algorithm reads it
--          life_ms, lend                 how long leases live; how many tokens are lent freely
--          want                          how many tokens the caller wants to hold, not counting those who wait
--          end, size, carry              its lease: its id, what it is counted with, what of it is unspent; all 0: none
--          hold                          1: what is granted is lent, too, and so is counted until it is spent
--          debt                          tokens that the caller has spent without asking
--          number                        which call this is, by whatever its caller chose; an integer below 2^53
--          for each run: cost, count     so many requests in a row that cost the same
-- reply    number                        the call's own, so that nobody takes another call's reply for its own
--          level, reset_ms               what is left, in units; ms until nothing is used if nothing more is taken
--          end, valid_ms                 the new lease: its id, how long it may be spent; 0, 0: none
--          kept, extra                   tokens of it: carried on from the old one, new
--          limited                       1: less than wanted, because there is little left
--          granted...                    how many of each run were granted (the first ones of the run)
-- or       number, 'WEIR ...'            the key holds something that this script did not write; it stays as it is
--
-- Numbers are doubles that only ever hold integers below 2^53, so they are exact; a debt that passes that is forgiven.
--
-- Redis TIME is the only clock. Where it is behind a key's time by a second at most, time stands still until it has
-- caught up. By more, it was set back, and time goes on from there, as if none had passed.
--
-- Lent tokens are used, always. A lease is counted in a slot until it is closed or the slot ends. There are two kinds,
-- 1 long and 2 short, and of each at most a current and a previous slot. A slot's end is the id of the leases in it.
-- Where the clock was set back, a slot that ends later than after two of its lives ends after two lives, or after the
-- time that it had left, should that be more: never before its leases do. They are no longer found when they are
-- reported, and their tokens come back by themselves.

local life_ms, lend, want = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local id, size, carry = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local hold, debt, number = ARGV[10] == '1', tonumber(ARGV[11]), assert(tonumber(ARGV[12]))
local most = 2^53 - 1
local reply = {number, 0, 0, 0, 0, 0, 0, 0}

-- What functions use of what stands outside them costs time in each call, so most is handed to them.

-- math.fmod is exact; the % of Lua 5.1 rounds a quotient and is not.
local function floor_div(a, b) return (a - math.fmod(a, b)) / b end
local function ceil_div(a, b)
  local rest = math.fmod(a, b)
  if rest == 0 then return a / b end
  return (a - rest) / b + 1
end

-- Whether a number of a value can be one that a script wrote; false for NaN.
local function is_count(a) return a >= 0 and a < 2^53 and math.fmod(a, 1) == 0 end

local time = redis.call('TIME')
local clock = tonumber(time[1]) * 1000 + floor_div(tonumber(time[2]), 1000)

-- What the key holds; false: there is none. An error about the key is caught, since one of Redis could not carry the
-- number, and is what no script has written: no bytes. Any other is Redis's own.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then
  if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
  value = ''
end

-- The slots that begin at this byte of the value, each its kind (one byte), its tokens and its end (six bytes each),
-- and what is lent in them. nil: no script wrote that.
local function read_slots(value, at)
  local bytes = #value - at + 1
  if bytes < 0 or bytes > 4 * 13 or bytes % 13 ~= 0 then return nil end
  local slots, lent = {}, 0
  for from = at, #value, 13 do
    local kind, tokens, ends = struct.unpack('<BI6I6', value, from)
    if kind ~= 1 and kind ~= 2 then return nil end
    slots[#slots + 1] = {kind = kind, tokens = tokens, ends = ends}
    lent = lent + tokens
  end
  return slots, lent
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

-- The key's time, which was `last`, and how much has passed since. lives_of(kind) is how long a slot takes leases, at
-- least.
local function time_since(last, slots, lives_of)
  if clock >= last then return clock, clock - last end
  if clock >= last - 1000 then return last, 0 end
  for _, slot in ipairs(slots) do
    local two_lives = clock + 2 * lives_of(slot.kind)
    if slot.ends > two_lives then
      slot.ends = unused_end(slots, math.max(two_lives, clock + slot.ends - last))
    end
  end
  return clock, 0
end

-- Slots that have ended are empty; then the caller's lease is taken off, if it is still counted. The slots that are not
-- empty now, what was taken, and what is lent.
local function close_lease(slots, now, id, size)
  local alive, taken, lent = {}, 0, 0
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
  return alive, taken, lent
end

-- Grants what fits into so many units, of which a token is `unit`, and notes in the reply how many of each run. The
-- tokens of all, and whether all that was asked for was granted.
local function grant(reply, level, unit)
  local tokens, all = 0, true
  for run = 13, #ARGV, 2 do
    local cost, count = tonumber(ARGV[run]), tonumber(ARGV[run + 1])
    local fit = math.min(count, floor_div(math.max(level, 0), cost * unit))
    level = level - fit * cost * unit
    tokens = tokens + fit * cost
    all = all and fit == count
    reply[#reply + 1] = fit
  end
  return tokens, all
end

-- Counts a lease, and returns its id, and for how long it may be spent. A slot takes leases for one life, and ends one
-- life later. An end is never moved, and none is given twice.
local function open_lease(slots, now, kind, lives, tokens)
  local current, previous
  for _, slot in ipairs(slots) do
    if slot.kind == kind then current, previous = slot, current end
  end
  if not previous and not (current and current.ends - now >= lives) then
    local ends = math.max(current and current.ends or 0, now) + lives
    current = {kind = kind, tokens = 0, ends = unused_end(slots, ends)}
    slots[#slots + 1] = current
  end
  current.tokens = current.tokens + tokens
  return current.ends, math.min(current.ends - now, 2 * lives)
end

-- Writes the value, `head` and the slots, for so long by the key's time and a second; a clock that is behind has that
-- way to go first.
local function write(head, slots, now, expires_in)
  for _, slot in ipairs(slots) do
    head = head .. struct.pack('<BI6I6', slot.kind, slot.tokens, slot.ends)
  end
  redis.call('SET', KEYS[1], head, 'PX', (now - clock) + expires_in + 1000)
end


"""What Redis carries out in one step: scripts in Lua.

Each names all its keys. A life is there as long as its values hold the mark; where they do not, nothing is changed.
"""

from __future__ import annotations

#: Stands among the values of a life from its beginning to its end; no key of a store reads so.
MARK = "\0mark"

#: values, numbers; mark, line, its last number, the number to take, key, is expected there, expected, is desired there,
#: desired, channel. Only what was found otherwise comes back.
SWAP = """
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return {'gone', false} end
if (redis.call('HGET', KEYS[2], ARGV[2]) or '') ~= ARGV[3] then return {'late', false} end
local found = redis.call('HGET', KEYS[1], ARGV[5])
if (found and '1' or '0') ~= ARGV[6] or (found or '') ~= ARGV[7] then return {'other', found} end
if ARGV[8] == '1' then redis.call('HSET', KEYS[1], ARGV[5], ARGV[9]) else redis.call('HDEL', KEYS[1], ARGV[5]) end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[4])
redis.call('PUBLISH', ARGV[10], '')
return {'done', false}
"""

#: values, numbers; mark, line, its last number, the number to take. Returns what has taken it.
SETTLE = """
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 'gone' end
local noted = redis.call('HGET', KEYS[2], ARGV[2]) or ''
if noted ~= ARGV[3] then return noted end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[4])
return ARGV[4]
"""

_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""

#: seats, present. Returns the seats with their beats, and who is present.
CENSUS = f"""
{_NOW}
return {{redis.call('HGETALL', KEYS[1]), redis.call('ZRANGEBYSCORE', KEYS[2], now, '+inf')}}
"""

_TELL = """
local function tell(life, values, numbers, seats, present, seat, beat, present_ms, kept_ms)
  redis.call('HSET', seats, seat, beat)
  redis.call('ZADD', present, now + present_ms, seat)
  for _, key in ipairs({life, values, numbers, seats, present}) do redis.call('PEXPIRE', key, kept_ms) end
end
"""

#: life, values, numbers, seats, present, and the four of the life before; the life before as it stood, or '', the new
#: one, mark, seat, beat, how long it counts, how long all is kept. Repeated, it finds its own life.
FOUND = f"""
{_NOW}{_TELL}
local there = redis.call('GET', KEYS[1]) or ''
if there ~= ARGV[2] then
  if there ~= ARGV[1] or redis.call('ZCOUNT', KEYS[9], now, '+inf') > 0 then return 0 end
  redis.call('DEL', KEYS[6], KEYS[7], KEYS[8], KEYS[9])
  redis.call('SET', KEYS[1], ARGV[2])
  redis.call('HSET', KEYS[2], ARGV[3], '')
end
tell(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[4], ARGV[5], ARGV[6], ARGV[7])
return 1
"""

#: life, values, numbers, seats, present; the life as it stood, seat, beat, how long it counts, how long all is kept.
#: A beat begins with what tells its user from others.
SIT = f"""
{_NOW}{_TELL}
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local taken = redis.call('HGET', KEYS[4], ARGV[2])
if taken and string.sub(taken, 1, 16) ~= string.sub(ARGV[3], 1, 16) then return 0 end
tell(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[2], ARGV[3], ARGV[4], ARGV[5])
return 1
"""

#: life, values, numbers, seats, present; mark, seat, beat, how long it counts, how long all is kept.
BEAT = f"""
{_NOW}{_TELL}
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 0 then return 0 end
tell(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[2], ARGV[3], ARGV[4], ARGV[5])
return 1
"""

#: life, values, numbers, seats, present; the life as it stood, seat, whether it is a rank's.
LEAVE = f"""
{_NOW}
redis.call('ZREM', KEYS[5], ARGV[2])
if ARGV[3] == '0' then redis.call('HDEL', KEYS[4], ARGV[2]) end
if redis.call('ZCOUNT', KEYS[5], now, '+inf') > 0 then return 0 end
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
redis.call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5])
return 1
"""

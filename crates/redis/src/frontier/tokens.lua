-- Returns the last of some new fencing tokens. KEYS: the last token. ARGV: a token that the new
-- ones must exceed, how many.
-- Tokens follow the clock in microseconds. So they also grow if the server lost the last ones.
local time = redis.call('TIME')
local last = tonumber(redis.call('GET', KEYS[1]) or 0)
last = math.max(last, tonumber(ARGV[1]), time[1] * 1000000 + time[2] - 1) + tonumber(ARGV[2])
local text = string.format('%.0f', last)
redis.call('SET', KEYS[1], text)
return text

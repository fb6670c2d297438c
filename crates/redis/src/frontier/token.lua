-- Returns a new fencing token. KEYS: the last token. ARGV: a token that the new one must exceed.
-- Tokens follow the clock in microseconds. So they also grow if the server lost the last ones.
local time = redis.call('TIME')
local last = tonumber(redis.call('GET', KEYS[1]) or 0)
local token = math.max(last + 1, tonumber(ARGV[1]) + 1, time[1] * 1000000 + time[2])
local text = string.format('%.0f', token)
redis.call('SET', KEYS[1], text)
return text

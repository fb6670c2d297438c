-- Returns the row of a crawl: its id, and 1 if it is paused. A new crawl gets the offered id.
-- KEYS: crawls. ARGV: name, most crawls, id.
-- Answers the number of crawls if there are too many.
local call = redis.call
local row = call('HGET', KEYS[1], ARGV[1])
if row then return row end
local count = call('HLEN', KEYS[1])
if count >= tonumber(ARGV[2]) then return count end
row = ARGV[3] .. ' 0'
call('HSET', KEYS[1], ARGV[1], row)
return row


redis.register_function('leasehold_write', write)
redis.register_function('leasehold_claim', claim)
redis.register_function('leasehold_arm', arm)
redis.register_function('leasehold_rearm', rearm)
redis.register_function('leasehold_resume', resume)
redis.register_function('leasehold_update', update)
redis.register_function('leasehold_read', read)
redis.register_function('leasehold_version', function() return 3 end)

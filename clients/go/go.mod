module leasehold

go 1.22

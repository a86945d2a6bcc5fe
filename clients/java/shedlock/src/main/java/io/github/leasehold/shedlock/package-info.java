/** ShedLock over Leasehold: {@link io.github.leasehold.shedlock.LeaseholdLockProvider}. */
package io.github.leasehold.shedlock;

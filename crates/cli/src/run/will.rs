//! What a minder needs to end its wrapper's session when the wrapper cannot: a wait that nobody takes back is granted later.

use std::fmt;
use std::time::Duration;

use leasehold::stream::Resume;
use leasehold::{Client, Endpoints, Error};
use serde::{Deserialize, Serialize};

/// A session and the secret it was opened with. It is said over a socket that only this user reaches.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Will {
    session: String,
    secret: Vec<u8>,
}

impl Will {
    pub fn of(resume: &Resume) -> Self {
        Self { session: resume.session.to_string(), secret: resume.secret.to_vec() }
    }

    /// Ends the session, and with it every wait and every lease. Whoever cannot be reached finds out by the session's ttl.
    pub async fn carry_out(&self, endpoints: Endpoints, patience: Duration) {
        let _ = tokio::time::timeout(patience, self.end(endpoints)).await;
    }

    async fn end(&self, endpoints: Endpoints) -> Result<(), Error> {
        let (Ok(session), Ok(secret)) = (self.session.parse(), <[u8; 32]>::try_from(&self.secret[..])) else {
            return Ok(());
        };
        let client = Client::connect(endpoints);
        // The secret shows that it is this session and not a later server's with the same number.
        let _stream = client.stream("minder", 0, Some(&Resume { session, secret })).await?;
        client.close_session(session).await
    }
}

/// Without the secret.
impl fmt::Debug for Will {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Will").field(&self.session).finish()
    }
}

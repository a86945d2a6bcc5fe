//! Attribution: who caused a change, how that is known and from where, as records and audit entries name it (A13).

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::LOCAL_PRINCIPAL;
use crate::codec::{DecodeError, Reader, Write};
use crate::limits::{CREDENTIAL_BYTES, PRINCIPAL_BYTES};
use crate::trace_context::TraceContext;

/// How an identity is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Via {
    /// A plain connection from this machine, on a server without access rules, or the server itself.
    #[default]
    Local,
    /// A plain connection, which proves nothing.
    Anonymous,
    /// The user id of the peer of a unix socket, or of the process that restored a backup.
    Uid,
    /// A client certificate.
    Certificate,
    /// A bearer token.
    Bearer,
}

impl Via {
    /// Every way, in the order of its code.
    pub const ALL: [Self; 5] = [Self::Local, Self::Anonymous, Self::Uid, Self::Certificate, Self::Bearer];

    /// The word in log lines and audit entries.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Anonymous => "anonymous",
            Self::Uid => "uid",
            Self::Certificate => "mtls",
            Self::Bearer => "bearer",
        }
    }
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// How the caller of a request is known, and where it connects from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestOrigin<'a> {
    /// How the caller is known.
    pub via: Via,
    /// What identifies its credential without revealing it: a digest or an id. Recorded up to [`CREDENTIAL_BYTES`].
    pub credential: &'a str,
    /// The address that it connects from; none on a unix socket.
    pub from: Option<SocketAddr>,
    /// The two-person proposal that the request executes.
    pub proposal: Option<u64>,
    /// The operation of a distributed trace that caused the request.
    pub trace: Option<TraceContext>,
}

impl RequestOrigin<'_> {
    /// The server itself, or a caller on a server without access rules.
    pub const LOCAL: RequestOrigin<'static> =
        RequestOrigin { via: Via::Local, credential: "", from: None, proposal: None, trace: None };
}

/// Who caused the records that follow in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribution<'a> {
    /// The identity.
    pub principal: &'a str,
    /// How it is known, and from where.
    pub origin: RequestOrigin<'a>,
}

impl<'a> Attribution<'a> {
    /// The server itself, or a caller on a server without access rules. It is not recorded.
    pub const LOCAL: Attribution<'static> = Attribution { principal: LOCAL_PRINCIPAL, origin: RequestOrigin::LOCAL };

    /// Appends everything but the trace context, which most requests do not have.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let RequestOrigin { via, credential, from, proposal, trace: _ } = self.origin;
        out.u8(via as u8);
        out.text(self.principal);
        out.text(&credential[..credential.floor_char_boundary(CREDENTIAL_BYTES)]);
        match from.map(|from| (from.ip(), from.port())) {
            None => out.u8(0),
            Some((IpAddr::V4(ip), port)) => {
                out.u8(4);
                out.raw(&ip.octets());
                out.num(u64::from(port));
            }
            Some((IpAddr::V6(ip), port)) => {
                out.u8(6);
                out.raw(&ip.octets());
                out.num(u64::from(port));
            }
        }
        out.maybe(proposal);
    }

    pub(crate) fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let via = Via::ALL.get(usize::from(from.u8()?)).copied();
        let via = via.ok_or_else(|| from.wrong("an unknown way to know an identity"))?;
        let principal = from.text()?;
        if !(1..=PRINCIPAL_BYTES).contains(&principal.len()) {
            return Err(from.wrong("an identity of a wrong length"));
        }
        let credential = from.text()?;
        if credential.len() > CREDENTIAL_BYTES {
            return Err(from.wrong("a credential of a wrong length"));
        }
        let ip = match from.u8()? {
            0 => None,
            4 => Some(IpAddr::from(from.array::<4>()?)),
            6 => Some(IpAddr::from(from.array::<16>()?)),
            _ => return Err(from.wrong("an unknown kind of address")),
        };
        let address = match ip {
            None => None,
            Some(ip) => {
                let port = u16::try_from(from.num()?).map_err(|_| from.wrong("an impossible port"))?;
                Some(SocketAddr::new(ip, port))
            }
        };
        let origin = RequestOrigin { via, credential, from: address, proposal: from.maybe()?, trace: None };
        Ok(Self { principal, origin })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(written: Attribution<'_>) -> (Attribution<'_>, usize) {
        let mut bytes = Vec::new();
        written.encode(&mut bytes);
        let leaked: &'static [u8] = bytes.leak();
        let mut from = Reader::new(leaked);
        let decoded = Attribution::decode(&mut from).expect("it decodes as written");
        assert!(from.is_empty());
        (decoded, leaked.len())
    }

    #[test]
    fn an_attribution_decodes_as_written_whatever_it_connects_from() {
        for from in ["127.0.0.1:4711", "[::1]:65535", "[2001:db8::1]:1"] {
            let from = Some(from.parse().expect("an address"));
            for (via, proposal) in Via::ALL.into_iter().zip([None, Some(0), Some(7), None, Some(u64::MAX)]) {
                let origin =
                    RequestOrigin { via, credential: "0123456789abcdef", from, proposal, ..RequestOrigin::LOCAL };
                let written = Attribution { principal: "spiffe://example/ops/ann", origin };
                assert_eq!(round_trip(written).0, written);
            }
        }
        let uid =
            Attribution { principal: "uid:1000", origin: RequestOrigin { via: Via::Uid, ..RequestOrigin::LOCAL } };
        assert_eq!(round_trip(uid), (uid, 13), "an identity of a unix socket costs its name and five bytes");
    }

    #[test]
    fn a_long_credential_is_recorded_up_to_its_limit_and_whole_characters() {
        let credential = "é".repeat(CREDENTIAL_BYTES);
        let origin = RequestOrigin { via: Via::Bearer, credential: &credential, ..RequestOrigin::LOCAL };
        let recorded = round_trip(Attribution { principal: "jwt:a", origin }).0.origin.credential.to_owned();
        assert_eq!(recorded, "é".repeat(CREDENTIAL_BYTES / 2));
    }

    #[test]
    fn malformed_attributions_are_refused() {
        let mut bytes = Vec::new();
        Attribution { principal: "dns:a", origin: RequestOrigin::LOCAL }.encode(&mut bytes);
        for cut in 0..bytes.len() {
            assert!(Attribution::decode(&mut Reader::new(&bytes[..cut])).is_err(), "cut at {cut}");
        }
        for (at, value) in [(0, 5), (1, 0), (8, 5)] {
            let mut wrong = bytes.clone();
            wrong[at] = value;
            assert!(Attribution::decode(&mut Reader::new(&wrong)).is_err(), "byte {at} is {value}");
        }
    }
}

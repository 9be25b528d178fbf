//! Rights of the peer's user.

use sabul_keys::Right;
use sabul_wire::control::{Part, Request};

use crate::access::User;

/// Returns the reason why the user may not make this request.
pub(super) fn denied(user: Option<&User>, request: &Request) -> Option<String> {
    let rights: &[Right] = match request {
        Request::Put { .. } | Request::MakeFolders { .. } | Request::SetMetadata { .. } => {
            &[Right::Write]
        }
        Request::Remove { .. } => &[Right::Remove],
        // The answer depends on the content of files.
        Request::Rename { content: Some(_), .. } => &[Right::Write, Right::Read],
        Request::Rename { .. } => &[Right::Write],
        Request::Get { .. } | Request::Attest { part: Part::Sender, .. } | Request::Hash { .. } => {
            &[Right::Read]
        }
        Request::List { options, .. } if options.reads_content() => &[Right::Read],
        Request::List { .. } => &[Right::List],
        // Without the right to read, the answer has only files that the session has written.
        Request::Attest { .. } => &[Right::Write, Right::List],
        Request::Measure { .. } => &[Right::Measure],
        // The application that answers a stream checks the rights.
        Request::Stream { .. } => &[],
    };
    let user = user?;
    if !user.pass.as_ref().is_none_or(|pass| pass.permits(request)) {
        return Some(format!(
            "the {} permits one copy to or from the named places, and nothing else",
            user.name
        ));
    }
    denial(Some(user), rights)
}

/// Returns the reason why the user has not all of these rights; `None` if nothing is missing.
pub(super) fn denial(user: Option<&User>, rights: &[Right]) -> Option<String> {
    let user = user?;
    let right = rights.iter().find(|right| !user.grant.rights.allow(**right))?;
    Some(format!(
        "{} has the rights '{}' and not '{}' here; contact the listener's administrator",
        user.name,
        user.grant.rights,
        right.name()
    ))
}

//! What is wrong with a token, in Envoy's words and numbers.

/// Declares each: its variant, its number and its text; the details of a refusal have `_` for blanks.
macro_rules! statuses {
    ($($variant:ident = $code:literal $text:literal $details:literal;)+) => {
        /// Envoy `JwtVerify::Status`, as far as a request can meet it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Status {
            $(#[doc = concat!("`", $text, "`")] $variant,)+
        }

        impl Status {
            /// What the client reads.
            pub(crate) const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// Its number in `failed_status_in_metadata`.
            pub(crate) const fn code(self) -> u8 {
                match self { $(Self::$variant => $code,)+ }
            }

            /// `%RESPONSE_CODE_DETAILS%`.
            pub(crate) const fn details(self) -> &'static str {
                match self { $(Self::$variant => concat!("jwt_authn_access_denied{", $details, "}"),)+ }
            }

            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$variant,)+];
        }
    };
}

statuses! {
    Missing = 1 "Jwt is missing" "Jwt_is_missing";
    NotYetValid = 2 "Jwt not yet valid" "Jwt_not_yet_valid";
    Expired = 3 "Jwt is expired" "Jwt_is_expired";
    BadFormat = 4
        "Jwt is not in the form of Header.Payload.Signature with two dots and 3 sections"
        "Jwt_is_not_in_the_form_of_Header.Payload.Signature_with_two_dots_and_3_sections";
    HeaderBadBase64 = 5
        "Jwt header is an invalid Base64url encoded" "Jwt_header_is_an_invalid_Base64url_encoded";
    HeaderBadJson = 6 "Jwt header is an invalid JSON" "Jwt_header_is_an_invalid_JSON";
    HeaderBadAlg = 7
        "Jwt header [alg] field is required and must be a string"
        "Jwt_header_[alg]_field_is_required_and_must_be_a_string";
    HeaderAlgUnknown = 8 "Jwt header [alg] is not supported" "Jwt_header_[alg]_is_not_supported";
    HeaderBadKid = 9
        "Jwt header [kid] field is not a string" "Jwt_header_[kid]_field_is_not_a_string";
    PayloadBadBase64 = 10
        "Jwt payload is an invalid Base64url encoded" "Jwt_payload_is_an_invalid_Base64url_encoded";
    PayloadBadJson = 11 "Jwt payload is an invalid JSON" "Jwt_payload_is_an_invalid_JSON";
    IssuerNotText = 12
        "Jwt payload [iss] field is not a string" "Jwt_payload_[iss]_field_is_not_a_string";
    SubjectNotText = 13
        "Jwt payload [sub] field is not a string" "Jwt_payload_[sub]_field_is_not_a_string";
    IssuedNotNumber = 14
        "Jwt payload [iat] field is not an integer" "Jwt_payload_[iat]_field_is_not_an_integer";
    IssuedOutOfRange = 15
        "Jwt payload [iat] field is not a positive 64 bit integer"
        "Jwt_payload_[iat]_field_is_not_a_positive_64_bit_integer";
    NotBeforeNotNumber = 16
        "Jwt payload [nbf] field is not an integer" "Jwt_payload_[nbf]_field_is_not_an_integer";
    NotBeforeOutOfRange = 17
        "Jwt payload [nbf] field is not a positive 64 bit integer"
        "Jwt_payload_[nbf]_field_is_not_a_positive_64_bit_integer";
    ExpiresNotNumber = 18
        "Jwt payload [exp] field is not an integer" "Jwt_payload_[exp]_field_is_not_an_integer";
    ExpiresOutOfRange = 19
        "Jwt payload [exp] field is not a positive 64 bit integer"
        "Jwt_payload_[exp]_field_is_not_a_positive_64_bit_integer";
    IdNotText = 20
        "Jwt payload [jti] field is not a string" "Jwt_payload_[jti]_field_is_not_a_string";
    AudienceNotText = 21
        "Jwt payload [aud] field is not a string or string list"
        "Jwt_payload_[aud]_field_is_not_a_string_or_string_list";
    SignatureBadBase64 = 22
        "Jwt signature is an invalid Base64url encoded"
        "Jwt_signature_is_an_invalid_Base64url_encoded";
    Ed25519Length = 23
        "Jwt ED25519 signature is wrong length" "Jwt_ED25519_signature_is_wrong_length";
    UnknownIssuer = 24 "Jwt issuer is not configured" "Jwt_issuer_is_not_configured";
    AudienceNotAllowed = 25
        "Audiences in Jwt are not allowed" "Audiences_in_Jwt_are_not_allowed";
    VerificationFails = 26 "Jwt verification fails" "Jwt_verification_fails";
    NoValidKeys = 31
        "Jwks doesn't have any valid public key" "Jwks_doesn't_have_any_valid_public_key";
    NoSuchKey = 32
        "Jwks doesn't have key to match kid or alg from Jwt"
        "Jwks_doesn't_have_key_to_match_kid_or_alg_from_Jwt";
    FetchFailed = 40 "Jwks remote fetch is failed" "Jwks_remote_fetch_is_failed";
}

impl Status {
    /// The status of a refusal.
    pub(super) const fn response(self) -> u16 {
        if matches!(self, Self::AudienceNotAllowed) { 403 } else { 401 }
    }

    /// Of several that fail, one that says more counts; of two that say as much, the later one.
    pub(super) const fn weight(self) -> u8 {
        if matches!(self, Self::Missing) {
            0
        } else if matches!(self, Self::UnknownIssuer) {
            1
        } else {
            2
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_the_text_without_blanks() {
        for status in Status::ALL {
            let wanted = format!("jwt_authn_access_denied{{{}}}", status.text().replace(' ', "_"));
            assert_eq!(status.details(), wanted);
        }
        assert!(Status::ALL.is_sorted_by_key(|status| status.code()));
    }
}

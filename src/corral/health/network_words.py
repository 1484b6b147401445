"""Patterns of error messages about the network, peers and access, with specific ones
before general ones."""

from typing import Final

from corral.domain.failure_advice import NextStep as S
from corral.domain.failure_class import FailureKind as F
from corral.health.pattern_form import errno, http, of

# Of OpenSSL, Go, Java, Node.js, rustls, GnuTLS and Schannel. The address was reached.
_OF_CERTIFICATES: Final = (
    "cert",
    "x509",
    "pkix",
    "curl: (",
    "altname",
    "hostname",
    "no name",
    "no subject",
)
_CERTIFICATES: Final = (
    of(
        F.CERTIFICATE,
        r"(?<!revoked or )certificates? (\w+ )?(has|have|is|was) (already )?expired",
        r"(expired|not yet valid) certificate|certificate.{0,60} not (yet )?(valid|active) yet",
        r"certificate.{0,40} is not yet (valid|activated)|CERT_(HAS_EXPIRED|NOT_YET_VALID)",
        r"peer certificate: (Expired|NotValidYet|certificate (expired|not valid yet))",
        r"Certificate(Expired|NotYetValid)Exception|Issued certificate (has expired|not yet)",
        step=S.CERTIFICATE_DATE,
        hints=_OF_CERTIFICATES,
    ),
    of(
        F.CERTIFICATE,
        r"Hostname mismatch, certificate|certificate is (not )?valid for |ALTNAME_INVALID",
        r"no alternative certificate subject name|peer certificate: NotValidForName",
        r"hostname .{1,80} doesn't match|certificate subject name .{0,80}not match",
        r"certificate common name .{0,80}doesn't match|No (name|subject alternative).{0,60} match",
        r"curl: \(51\)",
        step=S.CERTIFICATE_NAME,
        hints=_OF_CERTIFICATES,
    ),
    of(
        F.CERTIFICATE,
        r"CERTIFICATE_VERIFY_FAILED|certificate verif\w{1,8} failed|SSLCertVerificationError",
        r"SSL certificate problem|server certificate verification failed|curl: \((60|77)\)",
        r"cannot verify .{1,120} certificate|Error: self[- ]signed certificate",
        r"self[- ]signed certificate (in certificate chain|encountered)|confirming the ssl cert",
        r"certificate .{0,80}(signed by unknown authority|is not trusted)|\bx509: ",
        r"PKIX path (building|validation) failed|valid certification path|CertPathValidator",
        r"unable to (verify the first|get (local )?issuer) certificate|peer certificate: ",
        r"UNABLE_TO_(VERIFY_LEAF|GET_ISSUER_CERT)|SELF_SIGNED_CERT|ClientConnectorCertificate",
        r"failed to verify (the )?(server'?s? |peer )?certificate|SSL peer certificate",
        hints=_OF_CERTIFICATES,
    ),
)
# A connection was made, or a proxy answered; what waits for other ranks is further below.
_SERVICES: Final = (
    of(
        F.SERVICE_TIMEOUT,
        http(408, 504),
        r"\bRead ?timed? ?out\b|\bReadTimeout(?:Error)?\b(?!=)|\bRead timeout on endpoint",
        r"Gateway Time-?out\b|408 Request Time|Request timed out|upstream request timeout",
        r"The read operation timed out",
        r"curl: \(28\) (?:Operation timed out|Operation too slow|.{0,80}bytes received)",
        r"\bcurl: \(28\) SSL|Client\.Timeout exceeded while|awaiting (?:response )?headers",
        r"(?:StatusCode\.|StatusRuntimeException: )DEADLINE_EXCEEDED",
        r"code = DeadlineExceeded|exceptions\.DeadlineExceeded",
        r"context deadline exceeded|\bread (?:tcp|udp|unix) .{0,99}i/o timeout",
        r"APITimeoutError|(?:Headers|Body)TimeoutError|UND_ERR_(?:HEADERS|BODY)_TIMEOUT",
        r"Timeout (?:on )?reading (?:data )?from socket|ESOCKETTIMEDOUT|due to statement timeout",
        r"ServerTimeoutError|Read error \(Connection timed out\)|\.WriteTimeout\b",
        hints=("time", "504", "408", "deadline", "await", "curl: (28"),
    ),
    of(
        F.SERVICE,
        http(500, 502, 503),
        r"\b50[023] (?:Internal Server Error|Bad Gateway|Service (?:Temporarily )?Unavailable)",
        r"Service (?:Temporarily )?Unavailable|\bBad Gateway\b|Internal Server Error",
        r"\bServiceUnavailable\b|InternalServerError: Error code: 5",
        hints=("500", "502", "503", "unavailable", "bad gateway", "internal"),
    ),
)
# What the proxy answered about itself; that it asks for a password is in ACCESS.
_PROXY: Final = of(
    F.PROXY,
    r"(?:Cannot|Unable to|Could not|failed to) connect to (?:the )?proxy\b(?!.{0,200}\b407\b)",
    r"\bTunnel connection failed: (?!407)|CONNECT tunnel failed, response (?!407)",
    r"Received HTTP code (?!407)\d{3} from proxy|Could not resolve proxy|curl: \((?:5|97)\)",
    r"Proxy tunneling failed: (?!.{0,40}Authentication)|Invalid response from proxy",
    r"Unable to tunnel through proxy(?!.{0,60}\b407\b)|\bproxyconnect tcp:|Bad proxy url",
    r"tunneling socket could not be established(?!.{0,60}\b407\b)|ERR_PROXY_CONNECTION",
    r"\b(?:ClientHttp|ClientProxyConnection|Proxy|ProxyConnection)Error\b(?!.{0,200}\b407\b)",
    hints=("proxy", "tunnel"),
)
_DNS: Final = of(
    F.DNS,
    r"Temporary failure (?:in name resolution|resolving)|\bEAI_AGAIN\b",
    r"Resolving timed out|Name lookup timed out|could not contact DNS|\bSERVFAIL\b",
    r"\blookup \S{1,120}(?: on \S{1,60}:53)?: (?:server misbehaving|(?:read|dial) udp )",
    r"\b(?:dial|read) udp .{1,60}:53: |DNS(?: query| lookup)? (?:timed out|timeout)",
    hints=("resol", "eai_again", "lookup", "dns", "servfail", ":53"),
)
_INTERFACE: Final = of(
    F.INTERFACE,
    r"no socket interface found|Unable to find (?:address|interface) for: ",
    r"network device '[^']{1,60}' is not available|No such (?:network )?interface\b",
    r"\binterface \S{1,60} (?:was |is )?(?:not found|does not exist)",
    r"\b\w{1,20}_IFNAME\b.{0,80}\b(?:not (?:found|exist|valid)|invalid|does not)",
    hints=("interface", "network device", "unable to find", "_ifname"),
)
_NO_NAME: Final = of(
    F.NETWORK,
    r"NameResolutionError|no such host|gaierror",
    r"Name or service not known|No address associated with hostname|nodename nor servname",
    r"Could not resolve host|unable to resolve host",
    r"\b(ENOTFOUND|UnknownHostException)\b|dns error: ",
    r"curl: \(6\)|failed to lookup address|unable to resolve hostname",
    step=S.NAME,
)
_REFUSED: Final = of(
    F.NETWORK,
    errno(111),
    r"Connection ?Refused\w{0,9}|\bECONNREFUSED\b|target machine actively refused",
    r"curl: \(7\) .{0,120}(?:refused|Couldn't connect)",
    step=S.REFUSED,
)
# Another error of the same log is rather the cause.
HELPER_LOST: Final = of(
    F.HELPER,
    r"DataLoader worker \(pid.{1,60}\) exited unexpectedly",
    of_peers=True,
)
NETWORK_WORDS: Final = (
    *_CERTIFICATES,
    _PROXY,
    _DNS,
    _INTERFACE,
    of(
        F.PORT,
        errno(98),
        r"Address already in use|\bEADDRINUSE\b",
        r"port \d* ?(is )?(already )?(in use|allocated|taken|occupied)",
    ),
    of(
        F.ACCESS,
        r"Permission denied \((publickey|password|gssapi)|Host key verification failed",
        step=S.SSH,
    ),
    of(
        F.ACCESS,
        http(401, 403, 407),
        errno(126, 127, 128),  # keys of Kerberos and AFS: none, expired, revoked
        r"\b40[13] (Unauthorized|Forbidden)|^(Unauthorized|Forbidden)\b",
        r"\((Unauthorized|Forbidden)\)$|must be logged in|Access denied for user",
        r"GatedRepoError|access a gated repo",
        r"(Invalid|Expired|Bad|Missing|No) (user |access )?(token|credentials|API[ _]key)",
        r"api_key not configured|API key (not|is) |not logged in",
        r"\b(AccessDenied|SignatureDoesNotMatch|InvalidAccessKeyId|ExpiredToken)\b",
        r"(locate|find|load|default) .{0,20}credentials|<Response \[40[13]\]>",
        r"error code:? 40[13]\b|NoCredentialsError|UnauthorizedError",
        r"PERMISSION_DENIED:|UNAUTHENTICATED:",
        r"AuthenticationFailed|AuthenticationError|PermissionDeniedError|Invalid user token",
        r"could not read (Username|Password)|pull access denied|Required key not available",
        r"Authentication (failed|required)|password authentication failed",
    ),
    of(
        F.NETWORK,
        r"couldn't connect to 'https?://huggingface|not in the cached files|OfflineModeIsEnabled",
        r"LocalEntryNotFoundError|(cannot|could not|couldn't) (reach|connect to) .{0,40}\bhub\b",
        step=S.HUB,
    ),
    of(
        F.NETWORK,
        r"name or service is not known|cannot be retrieved \(gai error",
    ),
    *_SERVICES,
    of(
        F.FABRIC,
        r"Got completion .*(status=(5|9|10|11|12|13)\b|IBV_WC_\w+_ERR)",
        r"NET/IB.*(async event|port error|device fatal|Link down)",
        r"(transport )?retry (counter )?exceeded|local catastrophic error",
        r"UCX +(ERROR|DIAG).*(Endpoint timeout|Input/output|unreachable)",
        r"(socketStartConnect|socketProgress|ncclSocket|NET/Socket|Net :).*(No route|unreachable)",
        r"gloo.*(No route to host|Network is unreachable)",
        of_peers=True,
    ),
    of(
        F.RENDEZVOUS,
        r"RendezvousTimeout|rendezvous.{0,80}(timeout|timed out)",
        r"(timeout|timed out).{0,80}rendezvous",
        r"\d{1,9}/\d{1,9} clients joined|waiting for clients|Timed out initializing process group",
        r"connectFullMesh failed|gloo.{0,120}(connect timeout|timed out connecting)",
        r"Barrier timed out.{0,60}(PjRT_Client_Connect|Wait_for_all_tasks_to_register|\[Init\])",
        r"wait_for_workers|(waiting|timed out) .{0,60}\b(nodes?|workers|peers) to (join|connect)",
        of_peers=True,
    ),
    of(
        F.HANG,
        r"Watchdog caught collective operation timeout",
        r"Timed out waiting \d+ ?ms for (recv|send)",
        r"Collective .* timed out",
        r"ran for \d+ milliseconds before timing out",
        r"NCCL.*(timeout|timed out)",
        r"monitoredBarrier",
        r"(wait|barrier|all_?reduce|broadcast|all_?gather).*(timeout|timed out)",
        r"(timeout|timed out).*(barrier|all_?reduce|broadcast|all_?gather)",
        r"(timeout|timed out).*task names|heartbeat timeout",
        r"DEADLINE_EXCEEDED|DeadlineExceededError",
        r"Socket Timeout",
        r"store.*(wait|get).*time(d )?out",
        of_peers=True,
    ),
    of(
        F.PEER,
        r"Connection (closed|reset) by (remote )?peer",
        r"Application timeout caused pair closure",
        r"NCCL error",
        r"ncclRemoteError|ncclSystemError|ncclInternalError|ncclUnhandledCudaError",
        r"NCCL communicator (was|has been) aborted",
        r"Broken pipe|BrokenPipeError|ConnectionResetError|ECONNRESET|socket hang up",
        r"TCPStore.*(recvValue|sendBytes|failed|closed)|recvValue failed",
        r"gloo.*(connect|recv|send|pair|transport)",
        r"Process group .* (aborted|destroyed)|ConnectionAbortedError",
        r"Rendezvous(Closed|Connection|GracefulExit|State)|SignalException",
        r"UNAVAILABLE: |UnavailableError|Collective ops is aborted|coordination service",
        r"distributed service detected fatal errors",
        r"remote (process|task) (has )?(exited|failed)|another task died",
        r"Rank \d+ (was|is) (lost|dead|gone)",
        r"DistBackendError",
        of_peers=True,
    ),
    of(
        F.PEER,
        r"(DistNetworkError|DistStoreError|client socket has (failed|timed out)).*",
        r"(connect|connection) to .*MASTER_ADDR.* (failed|refused)",
        of_peers=True,
    ),
    _NO_NAME,
    _REFUSED,
    of(
        F.NETWORK,
        errno(100, 101, 110, 113),
        r"Network is unreachable|No route to host|Cannot assign requested address",
        r"Connection timed out|i/o timeout|Max retries exceeded",
        r"(ConnectTimeout|ConnectionError|ConnectError|URLError)",
        r"(EndpointConnectionError|SSLError)",
        r"\b(ENETUNREACH|EHOSTUNREACH|ETIMEDOUT)\b|curl: \((7|28|35|52|56)\)",
        r"RemoteDisconnected|Remote end closed|Server disconnected|IncompleteRead",
        r"socket\.timeout|TimeoutError: timed out|(Host|Network) is down",
        r"SSLEOFError|connection unexpectedly closed",
    ),
    HELPER_LOST,
)

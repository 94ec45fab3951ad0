module kvasir/test/curl

go 1.26.0

require (
	github.com/andybalholm/brotli v1.3.0
	github.com/klauspost/compress v1.20.4
	kvasir v0.0.0
	kvasir/test/program v0.0.0
)

replace (
	kvasir => ../..
	kvasir/test/program => ../program
)
